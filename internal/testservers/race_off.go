//go:build !race

package testservers

const raceEnabled = false
