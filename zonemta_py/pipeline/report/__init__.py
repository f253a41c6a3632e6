"""Reports: one HTML page with its plots and the tables behind them, made from the lake's tables.

scope and tables are plain; facts asks Spark; plots, sections and page are pure: the same facts make the same bytes.
"""
