package ipam

import (
	"strconv"
	"strings"
)

// numbered is the mark in a pattern of host interface names where a number goes, as the kernel has it.
const numbered = "%d"

// leastDigits is how much room a pattern leaves for the number, in bytes.
const leastDigits = 4

// CheckHostName checks a host interface name that is asked for: a name, or a pattern like veth%d.
func CheckHostName(want string) error {
	if !strings.Contains(want, "%") {
		if CheckInterface(want) != nil {
			return Invalid("host_interface_name", "%.40q is no interface name of 1 to %d bytes", want, MaxInterface)
		}
		return nil
	}
	prefix, found := CutHostNamePattern(want)
	if !found || strings.Contains(prefix, "%") || CheckInterface(prefix) != nil || len(prefix) > MaxInterface-leastDigits {
		return Invalid("host_interface_name", "%.40q is no pattern: up to %d bytes of a name, and %s at its end", want, MaxInterface-leastDigits, numbered)
	}
	return nil
}

// CutHostNamePattern returns what a pattern has before the number, and whether it is a pattern.
func CutHostNamePattern(want string) (prefix string, pattern bool) {
	return strings.CutSuffix(want, numbered)
}

// FitsHostName reports whether a name is what is asked for: it, or one of its pattern.
func FitsHostName(want, name string) bool {
	prefix, pattern := CutHostNamePattern(want)
	if !pattern {
		return want == name
	}
	digits, found := strings.CutPrefix(name, prefix)
	if !found {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return err == nil && strconv.FormatUint(n, 10) == digits
}
