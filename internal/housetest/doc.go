// Package housetest keeps the rules of the house as tests: who may import whom, that every package says what it is
// for, and that nothing of one machine or registry is written into the repository.
package housetest
