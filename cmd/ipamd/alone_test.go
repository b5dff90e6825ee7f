package main

import "flag"

// alone is whether nothing else runs on the machine, nor the race detector beside the daemon: only then do times say
// something of ipamd, and are judged. `make storm` sets it.
var alone = flag.Bool("alone", false, "nothing else runs on the machine: times are judged")

// turns is how often a flood and its control are taken in turn.
func turns() int {
	if *alone {
		return floodRounds
	}
	return 1
}
