package strategy

// What a leak would be seen by.

// AgendaLen returns how many leases the agenda has an entry for.
func (s *Strategy) AgendaLen() int {
	s.agenda.mu.Lock()
	defer s.agenda.mu.Unlock()
	n := 0
	for _, m := range s.agenda.moments {
		n += len(m.leases)
	}
	return n
}

// Waiting returns how many contenders stand in the line for key.
func (s *Strategy) Waiting(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ln := s.lines[key]; ln != nil {
		return len(ln.places)
	}
	return 0
}

// UnderWay returns how many requests, waits and clean-ups Close would wait for.
func (s *Strategy) UnderWay() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}
