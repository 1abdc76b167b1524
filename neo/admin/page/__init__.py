"""The web page of the admin node: what it says, as JSON, and the files of which it is made
(docs/web-page.md)."""
