package lora

// Live is how many versions the registry knows, those that only leases hold included.
func (r *Registry) Live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}
