"""Contract between schemes and engines, with the base classes of delay models, links, optimisers and faults."""
