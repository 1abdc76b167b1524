import sys

from neo.client.xa.command import main

if __name__ == "__main__":
    sys.exit(main())
