// Package interop has other people's published clients talk to runlog, unchanged:
// the tests of each folder are JavaScript, run by node against two edges over one
// event log. See README.md.
package interop
