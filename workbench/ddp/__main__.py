"""The module that torchrun starts for each rank."""

import sys

from workbench.ddp.launcher import main

if __name__ == "__main__":
    sys.exit(main())
