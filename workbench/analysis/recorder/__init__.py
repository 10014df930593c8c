"""Recorder of a training job: seconds of every step by phase, in each rank, while the job runs.

It needs only numpy, and uses PyTorch if it is installed. `recordings` reads its folders.
"""
