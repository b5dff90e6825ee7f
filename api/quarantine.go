package api

// QuarantineRequest quarantines an address by hand.
type QuarantineRequest struct {
	Reason string `json:"reason"`
}

// AdoptRequest gives a quarantined address to the sandbox that a person says lives
// with it. What is left out is what the quarantine knows of a lease that a rebuild
// lost; the uid is the sandbox's name where nothing names it.
type AdoptRequest struct {
	Sandbox       string      `json:"sandbox,omitempty"`
	UID           string      `json:"uid,omitempty"`
	Interface     string      `json:"interface,omitempty"`
	LeaseID       string      `json:"lease_id,omitempty"` // of before; one that has ended or is another's is refused
	Containers    []Container `json:"containers,omitempty"`
	Netns         string      `json:"netns,omitempty"`
	HostInterface string      `json:"host_interface,omitempty"`
	MAC           string      `json:"mac,omitempty"`
	Reason        string      `json:"reason"`
}
