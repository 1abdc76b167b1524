import sys

from examples.report.command import main

if __name__ == "__main__":
    sys.exit(main())
