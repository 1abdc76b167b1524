import sys

from neo.migrate.command import main

if __name__ == "__main__":
    sys.exit(main())
