import sys

from neo.simple.command import main

if __name__ == "__main__":
    sys.exit(main())
