package watchdog

import "errors"

// Errors of a runtime that is asked to freeze or thaw a task. Any other may pass.
var (
	// ErrNoTask means that the container has no task that lives: it is gone, has ended, or
	// was never started.
	ErrNoTask = errors.New("it has no task that lives")
	// ErrNotAllowed means that the runtime does not let ipamd do it.
	ErrNotAllowed = errors.New("the runtime does not allow it")
)
