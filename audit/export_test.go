package audit

// For the tests of what is stored.
var (
	Simple = simple
	Tools  = tools
	Waits  = waits
)
