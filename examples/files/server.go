package main

import (
	"encoding/json"
	"log"
	"net/http"
	"sync"
)

type store struct {
	mu     sync.RWMutex
	values map[string]string
}

func (s *store) get(w http.ResponseWriter, r *http.Request) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	value, ok := s.values[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Printf("encode: %v", err)
	}
}

func main() {
	s := &store{values: map[string]string{"/": "hello"}}
	http.HandleFunc("/", s.get)
	log.Fatal(http.ListenAndServe("127.0.0.1:9000", nil))
}
