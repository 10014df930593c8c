"""The contract between schemes and engines, and what both are made of: delays, links, optimisers."""
