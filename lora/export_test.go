package lora

// Live is how many versions the registry knows, those that only leases hold included.
func (r *Registry) Live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.live)
}

// RoleMagnitude is the role of DoRA's magnitudes.
const RoleMagnitude = roleMagnitude

// WithMethod returns t with another method, by its name.
func WithMethod(t Target, name string) Target {
	for _, m := range methods {
		if m.name() == name {
			t.method = m
		}
	}
	return t
}
