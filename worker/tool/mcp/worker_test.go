package mcp_test

func runWorker() error { return nil }
