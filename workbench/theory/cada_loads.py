"""Paper 3, CADA and G-CADA: communication and computation per iteration.

Distributed Adam and SGD are the case that all M workers are selected, CADA the case of groups of one worker.
"""

from __future__ import annotations

from workbench.theory._checks import positive, real, whole


def gcada_communication(selected: float, group_size: int = 1) -> float:
    """Messages per iteration: selected (M_G + 1), every worker downloads and one per group uploads.

    Parameters
    ----------
    selected : float
        Groups selected per iteration on average: G-bar; M-bar for CADA and M for distributed Adam
        (group_size=1).
    group_size : int
        Workers per group, M_G; 1 for CADA and distributed Adam: 2 messages per worker.

    Returns
    -------
    float
        Model downloads plus gradient uploads.

    Notes
    -----
    Paper 3, equations (17), (18) and (19).

    Examples
    --------
    >>> gcada_communication(3073, 3), gcada_communication(9646)  # the paper's totals at training loss 0.1
    (12292.0, 19292.0)
    """
    return real("selected", selected) * (whole("group_size", group_size, 1) + 1)


def gcada_computation(selected: float, group_size: int = 1, batch: float = 1.0) -> float:
    """Samples computed on per iteration: selected M_G batch.

    Parameters
    ----------
    selected : float
        Groups selected per iteration on average: G-bar; M-bar for CADA and M for distributed Adam
        (group_size=1).
    group_size : int
        Workers per group, M_G.
    batch : float
        Samples of a mini-batch, mu; 1 counts mini-batch gradients, as the paper's figures do.

    Returns
    -------
    float
        Samples (mini-batches with batch=1).

    Notes
    -----
    Paper 3, equations (20), (21) and (22).

    Examples
    --------
    >>> gcada_computation(3073, 3), gcada_computation(9646)
    (9219.0, 9646.0)
    """
    return real("selected", selected) * whole("group_size", group_size, 1) * positive("batch", batch)


def communication_ratio(group_size: int) -> float:
    """Communication over computation (in mini-batches) of G-CADA: (M_G + 1) / M_G, whoever is selected.

    Parameters
    ----------
    group_size : int
        Workers per group, M_G; 1 (CADA, distributed Adam) gives 2.

    Returns
    -------
    float
        A pure number.

    Notes
    -----
    Paper 3, (19) over (22). The published 12292 / 9219 = 4 / 3 means M_G = 3, although M_G = 4 is stated.

    Examples
    --------
    >>> communication_ratio(3) == 12292 / 9219
    True
    """
    return gcada_communication(1.0, group_size) / gcada_computation(1.0, group_size)
