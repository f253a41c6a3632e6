"""`zonemta queue`, `explain`, `standing`, `suppression`, `journal`, `fsck`, `backup`."""
