package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/skeinhq/skein/internal/app"
	"github.com/skeinhq/skein/pkg/kafka"
	"github.com/skeinhq/skein/pkg/kafka/embedded"
	"github.com/skeinhq/skein/pkg/store/sqlite"
)

// openBroker starts the broker on its folder and makes the topics.
//
// After a kill, part of a transaction may be committed: kfake ends a transaction partition by partition and writes the group's
// offsets last, so records may exist without their offsets, never the reverse. The compactor then processes these events again,
// and drops those that a record covers. After a power failure the end of the log may be lost. In both cases the local store and
// the index may be ahead of the log, so both are rebuilt from the log before new events are accepted.
func (s *Server) openBroker(ctx context.Context) error {
	if s.folder.unclean {
		s.cfg.Logger.Info("the last process did not close the data folder; derived data is made again")
		if err := s.folder.dropDerived(); err != nil {
			return err
		}
	}
	if err := s.folder.markRunning(); err != nil {
		return err
	}
	broker, err := embedded.Start(embedded.Config{Dir: s.folder.in(brokerName), Listen: s.cfg.KafkaListen, Logger: s.cfg.Logger})
	if err != nil {
		if !s.folder.unclean {
			s.folder.closed.Store(true) // nothing was opened
		}
		if errors.Is(err, embedded.ErrAddressInUse) {
			return app.AddressInUse(s.cfg.KafkaListen, "kafka-listen")
		}
		return err
	}
	s.group.Closing(ctx, "broker", func() error {
		broker.Close()
		s.folder.closed.Store(true)
		return nil
	})
	s.kafka = s.client("dev")
	s.kafka.Brokers = []string{broker.Addr()}

	if _, err := kafka.EnsureTopics(ctx, s.kafka, kafka.TopicSpec{
		Partitions: int32(s.cfg.Partitions),
		// There is no other copy of the raw events.
		EventsRetention: -1, DeadLettersRetention: -1,
	}); err != nil {
		return err
	}
	if s.adm, err = kafka.NewAdmin(s.kafka); err != nil {
		return err
	}
	s.group.Closing(ctx, "Kafka admin client", func() error { s.adm.Close(); return nil })
	return nil
}

// client returns the Kafka configuration of a part of this process.
func (s *Server) client(name string) kafka.Config {
	cfg := s.kafka
	cfg.ClientID = "skein-dev-" + name
	cfg.Logger = app.ClientLogger(s.cfg.Logger)
	cfg.Registerer = s.registry
	return cfg
}

// openStore opens the index. If there is none, it deletes the indexer's group, so that the indexer reads skein.runs from its start.
func (s *Server) openStore(ctx context.Context) error {
	path := filepath.Join(s.folder.in(indexName), "lineage.sqlite")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		group := s.kafka.IndexerGroup()
		if _, err := s.adm.DeleteGroup(ctx, group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return fmt.Errorf("resetting group %s: %w", group, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("making index folder: %w", err)
	}
	st, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	s.store = st
	s.group.Closing(ctx, "index", st.Close)
	return st.Migrate(ctx)
}
