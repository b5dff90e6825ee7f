package main

import "flag"

// alone is whether nothing else runs on the machine, nor the race detector beside the daemon: only then do times say
// something of ipamd, and are judged. `make storm` sets it.
var alone = flag.Bool("alone", false, "nothing else runs on the machine: times are judged")

// cycles is how often a flood and its control alternate.
func cycles() int {
	if *alone {
		return floodRounds
	}
	return 1
}
