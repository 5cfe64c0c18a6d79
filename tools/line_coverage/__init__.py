"""Line coverage of the packages that are shipped, by every process that a command starts, forks and killed ones too."""
