"""Reads across the database: metadata of transactions, iteration, scans."""
