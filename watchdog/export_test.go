package watchdog

// What the tests on real parts know of the watchdog's patience.
const (
	OwnerPause = ownerPause
	ReleaseAsk = releaseAsk
)
