"""`python -m signalbox` is the command line."""

from signalbox.cli.main import main

raise SystemExit(main())
