//go:build race

package main

// underRace is whether the race detector looks on, which takes most of the time
// of whatever is done for each frame.
const underRace = true
