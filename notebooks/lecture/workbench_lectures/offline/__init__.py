"""Lectures without a server: static pages whose figures and exercises are computed in the browser.

`translate` turns a lecture's own functions, and those of the package that they call, into JavaScript; `natives` says
what stands in for the rest; `grids` makes figures beforehand that neither can; `pages` writes the site.
"""
