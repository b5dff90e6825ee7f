package api

import "time"

// A Duration is a time span as the socket writes it: "10s", "1h30m". The zero
// Duration is one that was not given.
type Duration string

// Lasting is d as the socket writes it:
//
//	api.ReleaseRequest{Wait: api.Lasting(10 * time.Second)}
func Lasting(d time.Duration) Duration { return Duration(d.String()) }

// LastingIfAny is [Lasting], and "" for no time at all: a field that is left out.
func LastingIfAny(d time.Duration) Duration {
	if d == 0 {
		return ""
	}
	return Lasting(d)
}
