"""Reports that people look at: one HTML page with its plots and the tables behind them, made of the lake's tables.

scope and tables are plain; facts asks Spark; plots, sections and page are pure: the same facts make the same bytes.
"""
