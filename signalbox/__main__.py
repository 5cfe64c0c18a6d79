"""`python -m signalbox` is the command line."""

from signalbox.cli import main

raise SystemExit(main())
