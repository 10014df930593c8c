"""Parts of engines that are common to all: both engines run the same programs. `virtual` is the simulator."""
