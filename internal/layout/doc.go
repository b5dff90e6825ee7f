// Package layout holds the house's plan as tests: which room may import which,
// which library belongs to one room only, what a program must never link, and how
// many methods a type may have.
// Each line has its reason. It has no code of its own.
package layout
