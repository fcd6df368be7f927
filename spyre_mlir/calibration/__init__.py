"""The cost model beside times that a card measured: tables of them, figures of the agreement, fitted constants."""
