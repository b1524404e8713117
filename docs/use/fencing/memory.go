package fencing

import "sync"

// A memory keeps items behind one mutex.
type memory struct {
	mu    sync.Mutex
	items map[string]item
}

type item struct {
	value string
	last  Holder // the greatest that has touched the item, also to read
}

// touch is the rule, and the read, or with a value the write, that it allows.
func (m *memory) touch(id string, h Holder, value *string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	it := m.items[id]
	if !h.follows(it.last) {
		return "", ErrStale
	}
	it.last = h
	if value != nil {
		it.value = *value
	}
	m.items[id] = it
	return it.value, nil
}
