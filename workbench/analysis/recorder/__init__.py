"""Recorder of a training job: seconds of every step by phase, in each rank, while the job runs.

It needs numpy only, and PyTorch where there is one. `recordings` reads its folders.
"""
