import sys

from neo.export.command import main

if __name__ == "__main__":
    sys.exit(main())
