"""Fleet: machines on EC2, and everything else with their cluster's tag.

Everything made for a cluster has its tag from the start, so `Fleet.down` needs no notes. It ends everything with the
tag, and nothing else. Every machine is in one security group, and EC2 does not delete a group with a machine in it.
Once the group is gone, no machine is left, not even one of a call that failed.

`launch` starts machines, and `kind` handles prices, keys and the user.
"""

import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from workbench.core.base.errors import ClusterError
from workbench.mpi.clusters.ec2.aws import client, code, errors_as_sentences, slices
from workbench.mpi.clusters.ec2.requests import (
    CLUSTER,
    group_of,
    state,
)
from workbench.mpi.launch.reports import ProgressCallback, no_progress

MACHINES_PER_CALL = 100  # max machines in one call, as EC2's documentation advises
ANSWERS_PER_PAGE = 500  # number of entries on one page of a list
POLL_INTERVAL_S = 5.0  # s between two polls
END_TIMEOUT_S = 900.0  # s for machines to end
Machine = dict[str, Any]  # a machine as EC2 describes it
# AWS errors for which repeating does not help
_FINAL_ERRORS = {"UnauthorizedOperation", "OperationNotPermitted"}

# kinds of resources besides machines -> EC2's name, key of its list, key of its identifier
_LEFTOVERS = {
    "volume": ("volume", "Volumes", "VolumeId"),
    "interface": ("network_interface", "NetworkInterfaces", "NetworkInterfaceId"),
    "security group": ("security_group", "SecurityGroups", "GroupId"),
    "key pair": ("key_pair", "KeyPairs", "KeyName"),
}


class Fleet:
    """All machines of one cluster in one region, and the other resources with its tag.

    `tag`: the cluster's owner and name. Credentials come from AWS's usual chain, and are used for nothing else.

    >>> Fleet("ada/lab", "eu-central-1")
    <machines tagged straggler-workbench:cluster=ada/lab in eu-central-1>
    """

    def __init__(self, tag: str, region: str) -> None:
        self.tag, self.region = tag, region

    def __repr__(self) -> str:
        return f"<machines tagged {CLUSTER}={self.tag} in {self.region}>"

    @cached_property
    def ec2(self) -> Any:
        """Client of EC2, made on first use."""
        return client("ec2", self.region)

    def machines(self, ended: bool = False) -> list[Machine]:
        """Return all machines, sorted by group and index in it.

        `ended`: include ended machines that EC2 still lists.
        """
        with errors_as_sentences():
            groups = self.tagged("describe_instances", "Reservations")
            found = [m for group in groups for m in group["Instances"] if ended or state(m) != "terminated"]
            return sorted(found, key=_place_in_fleet)

    def left(self) -> dict[str, list[str]]:
        """Return the identifiers of everything left of the cluster, by kind. Empty if nothing is left."""
        found = {"machine": [m["InstanceId"] for m in self.machines()]}
        with errors_as_sentences():
            spot = self.tagged("describe_spot_instance_requests", "SpotInstanceRequests")
            alive = [each for each in spot if each["State"] in ("open", "active")]
            found["spot request"] = [each["SpotInstanceRequestId"] for each in alive]
            for sort, (word, key, identity) in _LEFTOVERS.items():
                found[sort] = [each[identity] for each in self.tagged(f"describe_{word}s", key)]
        return {sort: ids for sort, ids in found.items() if ids}

    def tagged(self, operation: str, key: str) -> list[dict[str, Any]]:
        """Return everything of a kind that carries the tag, from all pages."""
        only = {"Filters": [{"Name": f"tag:{CLUSTER}", "Values": [self.tag]}]}
        if not self.ec2.can_paginate(operation):
            return list(getattr(self.ec2, operation)(**only)[key])
        pages = self.ec2.get_paginator(operation).paginate(
            **only, PaginationConfig={"PageSize": ANSWERS_PER_PAGE}
        )
        return [each for page in pages for each in page[key]]

    def down(self, progress: ProgressCallback = no_progress) -> int:
        """End everything with the cluster's tag, and wait until it is gone. Return the number of machines.

        Does nothing if nothing exists. Raises `ClusterError` with a list of what is left.
        """
        end = time.monotonic() + END_TIMEOUT_S
        most, looks = 0, 1
        while looks:
            if left := self.left():
                alive = len(left.get("machine", []))
                # polled twice more, because new resources may be listed late
                most, looks = max(most, alive), 2
                progress("ending machines", most - alive, most)
                with errors_as_sentences():
                    refused = self._delete_what_is_possible(left)
                if time.monotonic() > end or not _FINAL_ERRORS.isdisjoint(refused.values()):
                    resources = _listed(left, refused)
                    raise ClusterError(f"{self!r}: STILL THERE, and perhaps costing money: {resources}")
            else:
                looks -= 1
            if looks:
                time.sleep(POLL_INTERVAL_S)
        progress("ending machines", most, most)
        return most

    def _delete_what_is_possible(self, left: dict[str, list[str]]) -> dict[str, str]:
        """Delete what can be deleted now. Return the refusals: resource -> reason."""
        ec2, deeds = self.ec2, []
        for ids in slices(left.get("machine", []), MACHINES_PER_CALL):
            deeds.append(("machines", partial(ec2.terminate_instances, InstanceIds=ids)))
        for ids in slices(left.get("spot request", []), MACHINES_PER_CALL):
            cancel = partial(ec2.cancel_spot_instance_requests, SpotInstanceRequestIds=ids)
            deeds.append(("spot requests", cancel))
        if "machine" not in left:  # other resources can be deleted only when no machine uses them
            for sort, (word, _, identity) in _LEFTOVERS.items():
                delete = getattr(ec2, f"delete_{word}")
                deeds += [(each, partial(delete, **{identity: each})) for each in left.get(sort, [])]
        return {what: why for what, do in deeds if (why := self._refusal(do))}

    def _refusal(self, do: Callable[[], Any]) -> str:
        """Call `do`. Return AWS's reason if it refused, or "" if it succeeded or the resource is gone."""
        try:
            do()
        except self.ec2.exceptions.ClientError as error:
            return "" if "NotFound" in code(error) else code(error) or "no answer of AWS"
        return ""


def _place_in_fleet(machine: Machine) -> tuple[str, int, str, str, str]:
    """Return the sort key of a machine. Raises LookupError if the answer lacks a field of every machine."""
    index = machine.get("AmiLaunchIndex", 0)
    return group_of(machine), index, machine["InstanceId"], machine["InstanceType"], state(machine)


def _listed(left: dict[str, list[str]], refused: dict[str, str]) -> str:
    some = {sort: ", ".join(ids[:5]) + " ..." * (len(ids) > 5) for sort, ids in left.items()}
    resources = "; ".join(f"{sort} {some[sort]} ({len(ids)})" for sort, ids in left.items())
    return resources + "".join(f"; {what}: {why}" for what, why in refused.items())
