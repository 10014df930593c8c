#!/bin/sh
# Stops the head of a ParallelCluster after an hour in which no job was in the queue and nobody was logged in; its disk
# stays, so it can be started again. Called by cron every ten minutes, see README.md.
# usage: sh idle-head.sh [FILE that notes since when it has been idle]
set -eu
PATH=$PATH:/opt/slurm/bin
since=${1:-$HOME/.idle-since}
jobs=$(squeue --noheader) || exit 0 # Slurm does not answer: that is not idle
if [ -n "$jobs$(who)" ]; then
    rm -f "$since"
elif [ ! -e "$since" ]; then
    touch "$since"
elif [ -n "$(find "$since" -mmin +60)" ]; then
    rm -f "$since"
    sudo shutdown -h now
fi
