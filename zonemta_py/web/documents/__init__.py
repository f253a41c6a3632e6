"""HTTP requests and responses: types, parsing, problem documents."""
