#!/bin/sh
# Turns a plain Debian 12 machine into one that an image can be made of: Python 3.11, and the exact packages of
# requirements.lock in /opt/workbench. Nothing in it is secret. See "The image" in docs/how-to/ec2.md.
# usage: sh image.sh requirements.lock
set -eu
lock=${1:?which requirements.lock?}
place=${2:-/opt/workbench}

export DEBIAN_FRONTEND=noninteractive
sudo apt-get update -q
sudo -E apt-get install -qy --no-install-recommends python3 python3-venv openssh-client ca-certificates

sudo python3 -m venv "$place"
sudo "$place/bin/pip" install --quiet --no-cache-dir --require-hashes -r "$lock"
"$place/bin/python" -c 'import mpi4py, numpy, scipy, sys; print("Python", sys.version.split()[0], "numpy", numpy.__version__)'
"$place/bin/mpiexec" --version | head -n 1

# What belongs to this machine alone: its end, its keys, its logs, what cloud-init remembers of its first start.
sudo rm -f /var/lib/cloud/scripts/per-boot/workbench-end
sudo cloud-init clean --logs
sudo rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub "$HOME/.ssh/authorized_keys"
sudo sync
echo "ready: make the image now, then end this machine"
