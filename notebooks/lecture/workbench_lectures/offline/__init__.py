"""Lectures without a server: static pages whose figures and exercises are computed in the browser.

`translate` turns a lecture's functions, and those of the package that they call, into JavaScript. `natives` lists
hand-written replacements for the rest. `tables` makes figures in advance that neither can. `pages` writes the site.
"""
