package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is how long a process has been on any processor, all of its
// threads together, the ended ones too.
func processorTime(pid int) (time.Duration, error) {
	const scheduler = 2 // CPUCLOCK_SCHED of linux/posix-timers.h: to the nanosecond, where /proc tells 10 ms
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduler), &t); err != nil {
		return 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// onProcessor is how long fn kept a process busy.
func onProcessor(pid int, fn func() error) (time.Duration, error) {
	before, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	if err := fn(); err != nil {
		return 0, err
	}
	after, err := processorTime(pid)
	return after - before, err
}

// until asks ok again and again, without a rest, until it says yes.
func until(what string, patience time.Duration, ok func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		switch yes, err := ok(); {
		case err != nil:
			return fmt.Errorf("wait until %s: %w", what, err)
		case yes:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("not within %v: %s", patience, what)
		}
	}
}
