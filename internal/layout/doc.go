// Package layout holds the house's plan as tests: which room may import which,
// which library belongs to one room only, and what a program must never link.
// Each line has its reason. It has no code of its own.
package layout
