// Package probe asks the wire who has an address: by ARP probe (RFC 5227) and
// neighbour solicitation (RFC 4861), on packet sockets that receive the answers, and
// answers at the ports where it matters by which port one came.
//
// It never sends a frame that claims an address, and takes nothing for an answer that
// was not asked for within a minute and is not addressed to us.
package probe
